package toolset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// Programs of the operating system that the lab runs.
const (
	Redis = "redis-server"
	Git   = "git"
)

// ErrNoInstaller means that a package of the operating system is missing and cannot be installed from here.
var ErrNoInstaller = errors.New("it needs apt-get, and root or sudo without a password")

// InstallRedis installs Debian's Redis when there is none on the PATH.
func InstallRedis(ctx context.Context, progress func(line string)) error {
	if _, err := exec.LookPath(Redis); err == nil {
		return nil
	}
	install, err := installer()
	if err != nil {
		return fmt.Errorf("install redis-server: %w; install the packages redis-server and redis-tools yourself and come back", err)
	}
	progress("installing redis-server and redis-tools ...")
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", "redis-server", "redis-tools"}} {
		cmd := exec.CommandContext(ctx, install[0], append(install[1:], args...)...)
		// A package that starts its service would take a fixed port, and outlive the lab.
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("install redis-server: apt-get %s: %w\n%s", args[0], err, out)
		}
	}
	return nil
}

func installer() ([]string, error) {
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return nil, ErrNoInstaller
	}
	if os.Geteuid() == 0 {
		return []string{apt}, nil
	}
	sudo, err := exec.LookPath("sudo")
	if err != nil {
		return nil, ErrNoInstaller
	}
	return []string{sudo, "-n", apt}, nil
}
