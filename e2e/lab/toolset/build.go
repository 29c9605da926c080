package toolset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Build makes what is missing, and tells progress one line per thing made. What is there is left as it is. The first
// time takes some 25 minutes on two cores; interrupted, it goes on where it was.
func (s *Set) Build(ctx context.Context, progress func(line string)) error {
	for _, m := range s.modules {
		for i, p := range m.programs {
			if exists(s.program(m, p.name)) {
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
		for name, program := range m.links {
			if err := os.Symlink(program, s.program(m, name)); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("link %s: %w", name, err)
			}
		}
	}
	return nil
}

// build makes one program beside its place and moves it there, so that what is there is whole.
func (s *Set) build(ctx context.Context, m module, p program) error {
	path := s.program(m, p.name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	unfinished := fmt.Sprintf("%s.%d", path, os.Getpid())
	var err error
	if m.wheel != "" {
		err = s.unpack(ctx, m, p.pkg, unfinished)
	} else {
		_, err = s.runGo(ctx, m, "build", "-trimpath", "-tags", m.tags(), "-ldflags", p.flags, "-o", unfinished, p.pkg)
	}
	if err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}

// tags are the build tags: those of a static program, where there is C in it.
func (m module) tags() string {
	if m.cgo {
		return "sqlite_omit_load_extension,osusergo,netgo"
	}
	return ""
}

// copyFiles copies the files of a module that are missing.
func (s *Set) copyFiles(ctx context.Context, m module) error {
	var source string
	for name, from := range m.files {
		path := s.file(m, name)
		if exists(path) {
			continue
		}
		if source == "" {
			var err error
			if source, err = s.download(ctx, m); err != nil {
				return err
			}
		}
		if err := duplicate(filepath.Join(source, filepath.FromSlash(from)), path); err != nil {
			return err
		}
	}
	return nil
}

// download returns the folder of the Go module that a module's files come from.
func (s *Set) download(ctx context.Context, m module) (string, error) {
	out, err := s.runGo(ctx, m, "mod", "download", "-json", m.source)
	if err != nil {
		return "", err
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(out, &found); err != nil {
		return "", fmt.Errorf("go mod download: %w", err)
	}
	return found.Dir, nil
}

// duplicate copies a file, or a folder with all that is in it, beside its place, and moves it there, so that what is there is whole.
func duplicate(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	unfinished := fmt.Sprintf("%s.%d", to, os.Getpid())
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.CopyFS(unfinished, os.DirFS(from))
	} else {
		var data []byte
		if data, err = os.ReadFile(from); err == nil {
			err = os.WriteFile(unfinished, data, 0o644)
		}
	}
	if err != nil {
		return err
	}
	return os.Rename(unfinished, to)
}

func (s *Set) runGo(ctx context.Context, m module, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(s.sources, m.folder)
	cgo := "0"
	if m.cgo {
		cgo = "1"
	}
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "GOFLAGS=-buildvcs=false", "GOWORK=off")
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, complaint.String())
	}
	return out, nil
}
