package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// chart is a Helm chart, by what its Chart.yaml says of it.
type chart struct {
	folder     string
	Name       string `yaml:"name"`
	Version    string `yaml:"version"`
	AppVersion string `yaml:"appVersion"`
}

// charts reads those of the product, and fails unless they are of the release's version: they install the images of appVersion.
func (r release) charts() ([]chart, error) {
	files, err := filepath.Glob(filepath.Join(r.root, "charts", "*", "Chart.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no chart in %s", filepath.Join(r.root, "charts"))
	}
	all := make([]chart, 0, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		c := chart{folder: filepath.Dir(file)}
		if err := yaml.Unmarshal(text, &c); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if want := strings.TrimPrefix(r.version, "v"); c.Version != want || c.AppVersion != r.version {
			return nil, fmt.Errorf("%s: version %s and appVersion %s: want %s and %s, which are released", file, c.Version, c.AppVersion, want, r.version)
		}
		all = append(all, c)
	}
	return all, nil
}

// packChart makes the archive of a chart as `helm package` does, but the same each time. The values that tests install it with stay out of it.
func (r release) packChart(c chart, folder string) error {
	all, err := filesOf(c.folder, c.Name)
	if err != nil {
		return err
	}
	published := all[:0]
	for _, m := range all {
		if !strings.HasPrefix(m.name, c.Name+"/ci/") {
			published = append(published, m)
		}
	}
	file := filepath.Join(folder, c.Name+"-"+c.Version+".tgz")
	return writeArchive(file, func(to io.Writer) error { return zippedTar(to, published, r.created) })
}
