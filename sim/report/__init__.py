"""Pages and figures that people look at."""
