"""This process's engine, made when it is first needed, and its log, traces and threads."""
