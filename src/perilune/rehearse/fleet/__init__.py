"""Many servers behind a router: who serves a request, PD pairs and transfers, failures, encoder roles."""
