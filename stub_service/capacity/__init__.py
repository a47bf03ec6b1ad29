"""The capacity controller: admission, budgets, retries and circuits between runs and dependencies."""
