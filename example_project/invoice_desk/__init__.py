"""The invoice desk: an agent that reads supplier invoices for accounts payable."""
