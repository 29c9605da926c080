package toolset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Build makes what is missing, and tells progress one line per thing made. What is there is left as it is. The first
// time takes some 15 minutes on two cores; interrupted, it goes on where it was.
func (s *Set) Build(ctx context.Context, progress func(line string)) error {
	if err := os.MkdirAll(filepath.Join(s.dir, "files"), 0o755); err != nil {
		return fmt.Errorf("folder of the tools: %w", err)
	}
	for _, m := range modules() {
		for i, p := range m.programs {
			if exists(s.Program(p.name)) {
				continue
			}
			progress(fmt.Sprintf("building %s (%s, %d of %d) ...", p.name, m.folder, i+1, len(m.programs)))
			began := time.Now()
			if err := s.build(ctx, m, p); err != nil {
				return fmt.Errorf("build %s: %w", p.name, err)
			}
			progress(fmt.Sprintf("built %s in %s", p.name, time.Since(began).Round(time.Second)))
		}
		if err := s.copyFiles(ctx, m); err != nil {
			return fmt.Errorf("files of %s: %w", m.source, err)
		}
	}
	for name, program := range links() {
		if err := os.Symlink(program, s.Program(name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return nil
}

// build makes one program beside its place and moves it there, so that what is there is whole.
func (s *Set) build(ctx context.Context, m module, p program) error {
	unfinished := fmt.Sprintf("%s.%d", s.Program(p.name), os.Getpid())
	_, err := s.runGo(ctx, m, "build", "-trimpath", "-ldflags", p.flags, "-o", unfinished, p.pkg)
	if err != nil {
		return err
	}
	return os.Rename(unfinished, s.Program(p.name))
}

func (s *Set) copyFiles(ctx context.Context, m module) error {
	var missing []string
	for name := range m.files {
		if !exists(s.File(name)) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	out, err := s.runGo(ctx, m, "list", "-m", "-f", "{{.Dir}}", m.source)
	if err != nil {
		return err
	}
	source := strings.TrimSpace(string(out))
	for _, name := range missing {
		data, err := os.ReadFile(filepath.Join(source, filepath.FromSlash(m.files[name])))
		if err != nil {
			return err
		}
		if err := os.WriteFile(s.File(name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (s *Set) runGo(ctx context.Context, m module, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(s.sources, m.folder)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off")
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, complaint.String())
	}
	return out, nil
}
