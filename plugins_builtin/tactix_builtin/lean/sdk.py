"""Takes the place of the whole SDK: what a layer at run time needs is in its modules."""
