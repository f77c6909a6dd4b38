"""One HTML file that shows a plan: Python prepares a document, the page in ``page`` draws it."""
