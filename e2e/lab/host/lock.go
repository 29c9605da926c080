package host

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// prefix is how folders of labs are called in the system's folder for temporary files.
const prefix = "argocd-agent-mesh-lab-"

// lockName is a file that a living lab holds a lock on.
const lockName = "lock"

// lock marks a folder as that of a living lab. The mark goes with the process, however that ends.
func lock(dir string) (*os.File, error) {
	// The file gets its name when it is locked already, so that nobody finds it unlocked.
	unnamed := filepath.Join(dir, lockName+".new")
	file, err := os.Create(unnamed)
	if err != nil {
		return nil, fmt.Errorf("lock of the lab's folder: %w", err)
	}
	if err = tryLock(file); err == nil {
		err = os.Rename(unnamed, filepath.Join(dir, lockName))
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock of the lab's folder: %w", err)
	}
	return file, nil
}

func tryLock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// removeAbandoned removes the folders of labs that were killed before they could do so themselves. What cannot be
// removed, being somebody else's or in use, is left.
func removeAbandoned() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*")) // the pattern is well-formed
	for _, dir := range dirs {
		file, err := os.Open(filepath.Join(dir, lockName))
		if err != nil {
			continue
		}
		if tryLock(file) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = file.Close()
	}
}
