package process

import "syscall"

// attributes put a program in a process group of its own, so that it can be killed with its children and hears no
// Ctrl-C that is meant for the lab, and let the kernel kill it when the lab itself dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
