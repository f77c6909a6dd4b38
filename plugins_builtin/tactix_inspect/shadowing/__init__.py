"""Shadow mode: a share of live requests runs again on references, in a process beside this one."""
