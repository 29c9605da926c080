package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// state is the folder of what outlives a lab that is killed. Root unmounts and removes what files in it name, so they are in no folder where others
// can make some of the same name.
const state = "/run/argocd-agent-mesh"

func statePath(name string) string { return filepath.Join(state, name) }

// ownFolder makes a folder that is of this user alone, or says that the one which is there is not.
func ownFolder(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	about, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(about.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is no folder that user %d alone may enter: remove it", path, os.Geteuid())
	}
	return nil
}
