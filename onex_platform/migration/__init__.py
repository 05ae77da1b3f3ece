"""Moving topics to other names and versions: phases, what is measured in each, and the way back."""
