"""The ways in: gRPC, its client, the routes for health and metrics."""
