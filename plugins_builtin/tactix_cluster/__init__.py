"""What works on other machines by Ray has in common."""
