"""Stands in for TensorFlow in `test_benchmark.py`.

In every run, `dlio_benchmark.main` imports its profiler for TensorBoard, which imports TensorFlow,
of 600 MB. The test feeds PyTorch, and uses neither.
"""
