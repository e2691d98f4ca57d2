"""The notebook as people see it: JupyterLab, Notebook 7 and the classic Notebook in a real Chromium."""
