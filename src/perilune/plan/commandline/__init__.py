"""Reading and writing a server's command line as data: nothing here runs, expands or looks anything up."""
