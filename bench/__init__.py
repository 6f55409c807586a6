"""The benchmark: what a lookup costs against doing without one, as ratios measured in one run."""
