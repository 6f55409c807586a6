"""Fleet simulation: many sidecars, with the real engine and core, before a modelled database."""
