"""The report's page, as it is written: HTML, CSS and JavaScript."""
