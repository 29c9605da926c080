// Package program builds Go programs for other platforms, so that the same source makes the same file everywhere.
package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Build is how a program is built.
type Build struct {
	// Folder is that of the module, and Package the program's in it, such as ./principal.
	Folder, Package string
	// OS and Arch are Go's names of the platform.
	OS, Arch string
	// LinkerFlags are those of the linker, such as -X path.name=value.
	LinkerFlags []string
}

// Into builds the program into a file: static, without the paths of this machine.
func (b Build) Into(ctx context.Context, file string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", strings.Join(append([]string{"-s", "-w"}, b.LinkerFlags...), " "),
		"-o", file, b.Package)
	cmd.Dir = b.Folder
	// What else of the environment changes what is built does so for everybody: GOAMD64 and such have their defaults.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+b.OS, "GOARCH="+b.Arch, "GOFLAGS=", "GOAMD64=", "GOARM64=", "GOEXPERIMENT=", "GOWORK=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s for %s/%s: %w\n%s", b.Package, b.OS, b.Arch, err, output)
	}
	return nil
}
