"""The page by which a decision is answered from a notice: one template, one script, one sheet of style."""
