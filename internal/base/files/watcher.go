package files

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
)

// process is what all of this process watches with. A user may have 128 of inotify's instances (fs.inotify.max_user_instances), which all Pods of
// a node share whose programs run as that user: one is enough for a process, whatever number of files it follows.
var process = &watcher{followers: make(map[*follower]struct{})} //nolint:gochecknoglobals // the kernel counts for the process and the user

// watcher watches directories for followers. It has an inotify instance while there are any.
type watcher struct {
	changing sync.Mutex        // is held while what is watched changes. What wakes followers never waits for it
	inotify  *fsnotify.Watcher // nil while nobody follows. Guarded by changing
	ended    chan struct{}     // closed when dispatch has returned. Guarded by changing

	mu        sync.Mutex
	followers map[*follower]struct{} // guarded by mu
}

// follower is one call of Follow.
type follower struct {
	directories []string // that it watches. Guarded by watcher.mu
	changed     signal.Signal
}

func (w *watcher) join() (*follower, error) {
	w.changing.Lock()
	defer w.changing.Unlock()
	if w.inotify == nil {
		inotify, err := fsnotify.NewWatcher()
		if err != nil {
			return nil, fmt.Errorf("start watching (is fs.inotify.max_user_instances too low?): %w", err)
		}
		w.inotify, w.ended = inotify, make(chan struct{})
		go w.dispatch(inotify, w.ended)
	}
	f := &follower{changed: signal.New()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.followers[f] = struct{}{}
	return f, nil
}

// leave is the end of a follower. The last one waits until nothing runs any more.
func (w *watcher) leave(f *follower) {
	w.changing.Lock()
	defer w.changing.Unlock()
	w.mu.Lock()
	delete(w.followers, f)
	last := len(w.followers) == 0
	w.mu.Unlock()
	if !last {
		w.removeUnwanted()
		return
	}
	_ = w.inotify.Close() // it only ever says that it was closed before
	<-w.ended
	w.inotify = nil
}

// dispatch wakes followers until the instance is closed.
func (w *watcher) dispatch(inotify *fsnotify.Watcher, ended chan struct{}) {
	defer close(ended)
	for {
		select {
		case event, open := <-inotify.Events:
			if !open {
				return
			}
			w.wake(func(f *follower) bool {
				return slices.Contains(f.directories, filepath.Dir(event.Name)) || slices.Contains(f.directories, event.Name)
			})
		case _, open := <-inotify.Errors: // an overflow, mostly: anything may have happened
			if !open {
				return
			}
			w.wake(func(*follower) bool { return true })
		}
	}
}

func (w *watcher) wake(whom func(*follower) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.followers {
		if whom(f) {
			f.changed.Give()
		}
	}
}

// watch has a follower watch these directories and no others, and reports whether one of them was not watched for it before. What does not exist
// is not watched.
func (w *watcher) watch(f *follower, directories []string) (grown bool, err error) {
	w.changing.Lock()
	defer w.changing.Unlock()
	w.mu.Lock()
	before := f.directories
	f.directories = directories
	w.mu.Unlock()
	w.removeUnwanted()
	watched := w.inotify.WatchList()
	for _, directory := range directories {
		if slices.Contains(watched, directory) && slices.Contains(before, directory) {
			continue
		}
		if err := w.inotify.Add(directory); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("watch directory %s: %w", directory, err)
		}
		grown = true
	}
	return grown, nil
}

// removeUnwanted watches no longer what no follower does. changing is held.
func (w *watcher) removeUnwanted() {
	for _, directory := range w.inotify.WatchList() {
		if !w.isWanted(directory) {
			_ = w.inotify.Remove(directory) // it fails when the directory is gone, which is just as well
		}
	}
}

func (w *watcher) isWanted(directory string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for f := range w.followers {
		if slices.Contains(f.directories, directory) {
			return true
		}
	}
	return false
}
