package toolset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Programs of the operating system that the lab runs.
const (
	Redis          = "redis-server"
	RedisBenchmark = "redis-benchmark"
	Git            = "git"
	Containerd     = "containerd"
	Ctr            = "ctr"
	Runc           = "runc"
	IP             = "ip"
	NFT            = "nft"
	Conntrack      = "conntrack"
	BusyBox        = "busybox"
)

// CNIPlugins is where Debian has those of containernetworking-plugins.
const CNIPlugins = "/usr/lib/cni"

// ErrNoInstaller means that a package of the operating system is missing and cannot be installed from here.
var ErrNoInstaller = errors.New("it needs apt-get, and root or sudo without a password")

// Install installs what the lab needs of Debian, unless it is there: Redis and what measures it, a C compiler for SPIRE, pip for Envoy,
// and what real nodes run.
func Install(ctx context.Context, progress func(line string)) error {
	packages := missingPackages(ctx)
	if len(packages) == 0 {
		return nil
	}
	names := strings.Join(packages, ", ")
	install, err := installer()
	if err != nil {
		return fmt.Errorf("install %s: %w; install these packages yourself and come back", names, err)
	}
	progress("installing " + names + " ...")
	for _, args := range [][]string{{"update"}, append([]string{"install", "-y", "--no-install-recommends"}, packages...)} {
		cmd := exec.CommandContext(ctx, install[0], append(install[1:], args...)...)
		// A package that starts its service would take a fixed port, and outlive the lab.
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("install %s: apt-get %s: %w\n%s", names, args[0], err, out)
		}
	}
	return nil
}

// missingPackages are those whose programs are not there.
func missingPackages(ctx context.Context) []string {
	var missing []string
	for program, packages := range map[string][]string{
		Redis: {"redis-server"}, RedisBenchmark: {"redis-tools"}, "gcc": {"gcc", "libc6-dev"},
		// What real nodes are made of.
		Containerd: {"containerd"}, Runc: {"runc"}, CNIPlugins + "/bridge": {"containernetworking-plugins"}, BusyBox: {"busybox-static"},
		IP: {"iproute2"}, NFT: {"nftables"}, "iptables": {"iptables"}, Conntrack: {"conntrack"},
	} {
		if _, err := Find(program); err != nil {
			missing = append(missing, packages...)
		}
	}
	if exec.CommandContext(ctx, "python3", "-m", "pip", "--version").Run() != nil {
		missing = append(missing, "python3-pip")
	}
	return missing
}

// Find returns the path of a program of the operating system. Those of its services are not on everybody's PATH.
func Find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	if path, err := exec.LookPath("/usr/sbin/" + program); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("%w: run `make tools`", err)
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
