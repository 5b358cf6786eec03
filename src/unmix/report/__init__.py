"""Numbers to pictures, tables and one HTML file. The only importer of matplotlib and jinja2."""
