"""Real parts for tests: brokers and databases that start in a fixture

`plugin` is loaded by pytest as soon as tidemill is installed; `postgres_server` is a PostgreSQL of one's own without
Docker.
"""
