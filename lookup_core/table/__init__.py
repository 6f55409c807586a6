"""A dimension that is held whole: loaded, followed and loaded anew."""
