package node

import (
	"context"
	"debug/elf"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// Programs are some of this machine, with all that they need to run in an image.
type Programs struct {
	Files map[string]string // path in the image => path here
	Paths map[string]string // name of a program => its path in the image
}

// Dynamic finds programs of this machine, by name or path, and the libraries that they load.
func Dynamic(ctx context.Context, names ...string) (Programs, error) {
	p := Programs{Files: make(map[string]string), Paths: make(map[string]string)}
	for _, name := range names {
		found, err := toolset.Find(name)
		if err != nil {
			return p, err
		}
		from, err := filepath.EvalSymlinks(found)
		if err != nil {
			return p, err
		}
		at := "/usr/bin/" + filepath.Base(name)
		p.Files[at], p.Paths[name] = from, at
		if err := p.addLibraries(ctx, from); err != nil {
			return p, fmt.Errorf("libraries of %s: %w", from, err)
		}
	}
	return p, nil
}

// addLibraries adds what the dynamic linker loads for a program, as it says itself, at the paths where it looks.
func (p Programs) addLibraries(ctx context.Context, program string) error {
	binary, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = binary.Close() }() // it was only read
	if static := binary.Section(".interp") == nil; static {
		return nil
	}
	out, err := exec.CommandContext(ctx, "ldd", program).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ldd: %w: %s", err, out)
	}
	for word := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(word, "/") {
			continue
		}
		at := strings.TrimSuffix(word, ":")
		if p.Files[at], err = filepath.EvalSymlinks(at); err != nil {
			return err
		}
	}
	return nil
}
