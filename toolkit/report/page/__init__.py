"""The parts of the page that need more than a template: charts, the token view's data, blame, comparison."""
