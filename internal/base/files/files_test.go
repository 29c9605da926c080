package files_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/files"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline is for a machine that stands still for a while.
const deadline = 2 * time.Minute

// follower is a Follow that runs until the test ends.
type follower struct {
	seen  chan string // the contents after each call of changed, "-" for a file that is missing
	ended chan error
}

// follow follows the paths.
func follow(t *testing.T, paths ...string) *follower {
	t.Helper()
	f := &follower{seen: make(chan string), ended: make(chan error, 1)}
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		f.ended <- files.Follow(ctx, paths, func() {
			select {
			case f.seen <- contents(paths):
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-f.ended)
	})
	return f
}

func contents(paths []string) string {
	var all []string
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			content = []byte("-")
		}
		all = append(all, string(content))
	}
	return strings.Join(all, " ")
}

// sees waits until a call of changed finds these contents. Calls before may have found others.
func (f *follower) sees(t *testing.T, want string) {
	t.Helper()
	timeout := time.After(deadline)
	var last string
	for last != want {
		select {
		case last = <-f.seen:
		case err := <-f.ended:
			f.ended <- err
			t.Fatalf("Follow ended: %v", err)
		case <-timeout:
			t.Fatalf("it found %q last, not %q", last, want)
		}
	}
}

// write writes a file by renaming another one to it, as careful tools do.
func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

func TestFollowCallsOnceAtTheStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "a")
	follow(t, path).sees(t, "a")
}

func TestFollowSeesWritesRenamesAndRemovals(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	f := follow(t, path)
	f.sees(t, "-")
	write(t, path, "a")
	f.sees(t, "a")
	require.NoError(t, os.WriteFile(path, []byte("b"), 0o600))
	f.sees(t, "b")
	require.NoError(t, os.Remove(path))
	f.sees(t, "-")
	write(t, path, "c")
	f.sees(t, "c")
}

func TestFollowSeesEachOfSeveralPaths(t *testing.T) {
	t.Parallel()
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")
	f := follow(t, one, two)
	f.sees(t, "- -")
	write(t, two, "b")
	f.sees(t, "- b")
	write(t, one, "a")
	f.sees(t, "a b")
}

func TestFollowSeesFilesOfAFolder(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "folder")
	require.NoError(t, os.Mkdir(folder, 0o700))
	changed := make(chan int)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- files.Follow(ctx, []string{folder}, func() {
			entries, _ := os.ReadDir(folder)
			select {
			case changed <- len(entries):
			case <-ctx.Done():
			}
		})
	}()
	require.Equal(t, 0, <-changed)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "a"), nil, 0o600))
	for found := range changed {
		if found == 1 {
			break
		}
	}
	stop()
	require.NoError(t, <-ended)
}

// Kubernetes updates a mounted Secret so: files are links into a link to a folder, and that link is replaced.
func TestFollowSeesAMountedSecretChange(t *testing.T) {
	t.Parallel()
	mount := t.TempDir()
	update := func(folder, content string) {
		require.NoError(t, os.Mkdir(filepath.Join(mount, folder), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(mount, folder, "tls.crt"), []byte(content), 0o600))
		require.NoError(t, os.Symlink(folder, filepath.Join(mount, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(mount, "..data_tmp"), filepath.Join(mount, "..data")))
	}
	update("..first", "a")
	require.NoError(t, os.Symlink(filepath.Join("..data", "tls.crt"), filepath.Join(mount, "tls.crt")))
	f := follow(t, filepath.Join(mount, "tls.crt"))
	f.sees(t, "a")
	for i, content := range []string{"b", "c", "d"} { // again, with what is watched since
		update("..then"+string(rune('0'+i)), content)
		require.NoError(t, os.RemoveAll(filepath.Join(mount, []string{"..first", "..then0", "..then1"}[i])))
		f.sees(t, content)
	}
}

func TestFollowSeesLinksAndFoldersOnTheWayChange(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, folder := range []string{"a", "b"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, folder, "deep"), 0o700))
		write(t, filepath.Join(root, folder, "deep", "file"), folder)
	}
	link := filepath.Join(root, "link")
	require.NoError(t, os.Symlink(filepath.Join(root, "a"), link)) // an absolute one
	f := follow(t, filepath.Join(link, "deep", "file"))
	f.sees(t, "a")
	require.NoError(t, os.Remove(link))
	f.sees(t, "-")
	require.NoError(t, os.Symlink("b", link)) // a relative one
	f.sees(t, "b")
	write(t, filepath.Join(root, "b", "deep", "file"), "changed")
	f.sees(t, "changed")
}

func TestFollowSeesFoldersAppear(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	path := filepath.Join(root, "one", "two", "file")
	f := follow(t, path)
	f.sees(t, "-")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	write(t, path, "a")
	f.sees(t, "a")
	require.NoError(t, os.RemoveAll(filepath.Join(root, "one")))
	f.sees(t, "-")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	write(t, path, "b")
	f.sees(t, "b")
}

// Links that lead to each other end the walk. What repairs them is seen.
func TestFollowEndsALoopOfLinks(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	one, two := filepath.Join(root, "one"), filepath.Join(root, "two")
	require.NoError(t, os.Symlink(two, one))
	require.NoError(t, os.Symlink(one, two))
	f := follow(t, one)
	f.sees(t, "-")
	require.NoError(t, os.Remove(two))
	write(t, two, "a")
	f.sees(t, "a")
}

// Whatever a process follows, it needs one of the few inotify instances that a user may have; and who ends leaves the others what they watch.
func TestFollowersShareOneInstance(t *testing.T) {
	instances := func() (n int) {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("there is no /proc")
		}
		for _, one := range open {
			if target, err := os.Readlink("/proc/self/fd/" + one.Name()); err == nil && strings.Contains(target, "inotify") {
				n++
			}
		}
		return n
	}
	folder, other := t.TempDir(), t.TempDir()
	path, elsewhere := filepath.Join(folder, "shared"), filepath.Join(other, "own")
	stays := follow(t, path)
	stays.sees(t, "-")
	t.Run("another one", func(t *testing.T) {
		leaves := follow(t, path, elsewhere)
		leaves.sees(t, "- -")
		require.Equal(t, 1, instances())
		write(t, path, "one")
		stays.sees(t, "one")
		leaves.sees(t, "one -")
		write(t, elsewhere, "two")
		leaves.sees(t, "one two")
	})
	write(t, path, "three")
	stays.sees(t, "three")
	require.Equal(t, 1, instances())
}
