package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const sample = `syntax = "proto3";
package sample;
option go_package = "example.invalid/sample";
message Sample { string name = 1; }
service Samples { rpc Take(Sample) returns (Sample); }
`

// run runs the command on sample.proto in the root, and returns what it says when it fails.
func run(t *testing.T, root string, flags ...string) (complaint string) {
	t.Helper()
	arguments := append([]string{"run", ".", "-root", root}, flags...)
	output, err := exec.CommandContext(t.Context(), "go", append(arguments, "sample.proto")...).CombinedOutput()
	if err == nil {
		return ""
	}
	return string(output)
}

func TestCheckNamesWhatIsStaleAndWritesNothing(t *testing.T) {
	root := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stale := func(names string) {
		t.Helper()
		if complaint := run(t, root, "-check"); !strings.Contains(complaint, "stale, run `make generate`: "+names+"\n") {
			t.Fatalf("want %s to be named as stale, got %q", names, complaint)
		}
	}

	write("sample.proto", sample)
	stale("sample.pb.go, sample_grpc.pb.go")
	if _, err := os.Stat(filepath.Join(root, "sample.pb.go")); !os.IsNotExist(err) {
		t.Fatal("a check has written code")
	}

	if complaint := run(t, root); complaint != "" {
		t.Fatal(complaint)
	}
	if complaint := run(t, root, "-check"); complaint != "" {
		t.Fatal(complaint)
	}

	write("gone.pb.go", "package sample")
	stale("gone.pb.go")
	if err := os.Remove(filepath.Join(root, "gone.pb.go")); err != nil {
		t.Fatal(err)
	}
	write("sample.proto", sample+"message Another {}\n")
	stale("sample.pb.go")
}

func TestABrokenFileIsNamed(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "sample.proto"), []byte("syntax = \"proto3\";\nmessage {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if complaint := run(t, root); !strings.Contains(complaint, "sample.proto:2:9") {
		t.Fatalf("want the line named, got %q", complaint)
	}
}
