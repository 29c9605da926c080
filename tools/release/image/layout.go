package image

import (
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The annotations by which programs find an image in a layout: OCI's own, and that of containerd, which wants the whole reference.
const (
	refName        = "org.opencontainers.image.ref.name"
	containerdName = "io.containerd.image.name"
)

// Index has the images of several platforms be one.
func Index(images ...v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		descriptor, err := partial.Descriptor(image)
		if err != nil {
			return nil, err
		}
		descriptor.Platform = config.Platform()
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: *descriptor})
	}
	return index, nil
}

// Write writes an image of several platforms to a folder, as an OCI layout in place of what is there. The reference is the image's name and
// tag, such as principal:v1.2.3.
func Write(folder, reference, tag string, index v1.ImageIndex) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	at, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("OCI layout %s: %w", folder, err)
	}
	if err := at.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: tag, containerdName: reference + ":" + tag})); err != nil {
		return fmt.Errorf("OCI layout %s: %w", folder, err)
	}
	return nil
}
