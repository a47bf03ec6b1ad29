"""A real caller, judged by what arrived at the stand-in: who retried, how often, how early, and what was done twice."""
