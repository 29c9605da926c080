package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/pluginpb"
)

// generated maps a path, relative to the root, to the Go code that belongs there.
type generated map[string]string

// generate runs the plugins that this module's go.mod pins.
func generate(ctx context.Context, request *pluginpb.CodeGeneratorRequest) (generated, error) {
	request.Parameter = new("paths=source_relative")
	input, err := proto.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("plugin request: %w", err)
	}
	files := generated{}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := files.runPlugin(ctx, plugin, input); err != nil {
			return nil, fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return files, nil
}

// runPlugin adds the files that one plugin makes. The plugin is started through `go tool`, which builds the pinned
// version; the working folder must therefore be inside this module.
func (g generated) runPlugin(ctx context.Context, plugin string, input []byte) error {
	command := exec.CommandContext(ctx, "go", "tool", plugin)
	command.Stdin = bytes.NewReader(input)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &response); err != nil {
		return fmt.Errorf("plugin response: %w", err)
	}
	if response.Error != nil {
		return errors.New(response.GetError())
	}
	for _, file := range response.GetFile() {
		g[file.GetName()] = file.GetContent()
	}
	return nil
}

// write puts every file in its place.
func (g generated) write(root string) error {
	for name, content := range g {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compare fails with the names of the files under root that differ from what was generated, are missing, or were
// generated once from something that is gone.
func (g generated) compare(root string) error {
	var stale []string
	folders := map[string]bool{}
	for name, content := range g {
		folders[filepath.Dir(name)] = true
		have, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || string(have) != content {
			stale = append(stale, name)
		}
	}
	for folder := range folders {
		found, err := filepath.Glob(filepath.Join(root, folder, "*.pb.go"))
		if err != nil {
			return err
		}
		for _, path := range found {
			name := filepath.Join(folder, filepath.Base(path))
			if _, wanted := g[name]; !wanted {
				stale = append(stale, name)
			}
		}
	}
	if len(stale) == 0 {
		return nil
	}
	slices.Sort(stale)
	return fmt.Errorf("generated code is stale, run `make generate`: %s", strings.Join(stale, ", "))
}
