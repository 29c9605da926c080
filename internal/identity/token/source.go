package token

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/files"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
)

const (
	// signingFile is the file of a folder whose key signs.
	signingFile = "jwt.key"
	// maxFile bounds one file: the path may lead anywhere.
	maxFile = 1 << 20
	// maxFiles bounds the files that are read of a folder.
	maxFiles = 2 * maxKeys
)

// Source keeps Keys current with a file or a folder. It is safe for concurrent use.
type Source struct {
	path   string
	logger *slog.Logger

	changed signal.Broadcast // the keys have changed

	mu      sync.RWMutex // guards what is below
	keys    *Keys        // the last good ones; nil before the first
	failure error        // why what is there now was not taken; nil when it was
}

// NewSource returns a Source that has no keys until Run has found them. The package's documentation says what the path may
// lead to.
func NewSource(path string, logger *slog.Logger) *Source {
	return &Source{
		path: path, logger: logger,
		failure: fmt.Errorf("keys of bearer tokens: %s has not been read yet", path),
	}
}

// Keys returns the newest good keys, or, when there never were any, an error that says why.
func (s *Source) Keys() (*Keys, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.keys == nil {
		return nil, s.failure
	}
	return s.keys, nil
}

// Changed returns a channel that is closed when the keys change next.
func (s *Source) Changed() <-chan struct{} {
	return s.changed.Changed()
}

// Verify is Verify of the newest good keys.
func (s *Source) Verify(raw string) (Token, error) {
	keys, err := s.Keys()
	if err != nil {
		return Token{}, fmt.Errorf("%w: it cannot be verified: %w", ErrRefused, err)
	}
	return keys.Verify(raw)
}

// Run follows the keys until ctx ends, which is no error. It fails only when nothing can be watched at all; keys that are
// missing or bad are waited for, and the last good ones stay in use.
func (s *Source) Run(ctx context.Context) error {
	if err := files.Follow(ctx, []string{s.path}, func() { s.take(read(s.path)) }); err != nil {
		return fmt.Errorf("keys of bearer tokens: %w", err)
	}
	return nil
}

// take puts what was read to use, or says once why not.
func (s *Source) take(keys *Keys, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("keys of bearer tokens: %w", err)
		if s.failure == nil || s.failure.Error() != err.Error() {
			s.logger.Warn("Failed to load bearer token keys; keeping the last good ones", "error", err, "any", s.keys != nil)
		}
		s.failure = err
		return
	}
	s.failure = nil
	if s.keys != nil && s.keys.signs() == keys.signs() && slices.Equal(s.keys.Thumbprints(), keys.Thumbprints()) {
		return
	}
	s.keys = keys
	s.logger.Info("Loaded bearer token keys", "from", s.path, "signing", keys.signs(), "verifying", keys.Thumbprints())
	s.changed.Give()
}

// signs returns the thumbprint of the key that signs; empty when there is none.
func (k *Keys) signs() string {
	if k.signing == nil {
		return ""
	}
	return k.signing.id
}

// read reads the keys of a file or a folder.
func read(path string) (*Keys, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: mount the Secret argocd-agent-jwt there, or create it with: argocd-agentctl jwt create-key", err)
	}
	if !info.IsDir() {
		text, err := readFile(path)
		if err != nil {
			return nil, err
		}
		keys, err := ParseKeys(text)
		return keys, inFile(path, err)
	}
	return readFolder(path)
}

// readFolder reads the keys of a folder.
func readFolder(path string) (*Keys, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	found := make(map[string][]byte)
	for _, entry := range entries {
		if !holdsKey(entry.Name()) {
			continue
		}
		if len(found) == maxFiles {
			return nil, fmt.Errorf("folder %s: more than %d keys: remove the oldest", path, maxFiles)
		}
		file := filepath.Join(path, entry.Name())
		text, err := readFile(file)
		if err != nil {
			return nil, err
		}
		if _, err := parse(text); err != nil {
			return nil, inFile(file, err)
		}
		found[entry.Name()] = text
	}
	keys, err := ParseFolder(found)
	return keys, inFile(path, err)
}

// ParseFolder reads the keys of a folder's files, by the names that the package's documentation has.
func ParseFolder(files map[string][]byte) (*Keys, error) {
	var older [][]byte
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name != signingFile && holdsKey(name) {
			older = append(older, files[name])
		}
	}
	return ParseKeys(files[signingFile], older...)
}

// holdsKey says whether a file of a folder is read, by its name.
func holdsKey(name string) bool {
	return name == signingFile || filepath.Ext(name) == ".pub" ||
		strings.HasPrefix(name, "jwt-") && filepath.Ext(name) == filepath.Ext(signingFile)
}

// inFile says where the error is.
func inFile(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", path, err)
}

// readFile reads a file that is not too long.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // nothing was written
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s: longer than %d bytes: it is no key", path, maxFile)
	}
	return text, err
}
