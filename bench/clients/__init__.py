"""What one measurement does, a module for each library that is measured."""
