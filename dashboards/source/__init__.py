"""What the dashboards show: one module each, and the parts they share."""
