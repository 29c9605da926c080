// Package sbom lists what is in a Go program, as SPDX has it: a software bill of materials.
package sbom

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// unknown is what SPDX says of what nobody has looked for.
const unknown = "NOASSERTION"

// Program is what is listed.
type Program struct {
	// File is the program, Name what it is called, and Version which one it is. License is the SPDX expression of its own.
	File, Name, Version, License string
	// Namespace makes the document's name its own in the world: a URI.
	Namespace string
	// Created is when the program was made.
	Created time.Time
}

// Write writes the SPDX document of a program as JSON: what Go's linker noted in the file, which is what was linked into it.
func Write(to io.Writer, p Program) error {
	info, err := buildinfo.ReadFile(p.File)
	if err != nil {
		return fmt.Errorf("modules of %s: %w", p.File, err)
	}
	digest, err := digestOf(p.File)
	if err != nil {
		return err
	}
	own := p.own(info, digest)
	document := &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: p.Name,
		DocumentNamespace: p.Namespace + "/" + digest,
		CreationInfo: &v2_3.CreationInfo{
			Created: p.Created.UTC().Format(time.RFC3339), Creators: []common.Creator{{CreatorType: "Organization", Creator: "argocd-agent-mesh"}},
		},
		Packages:      []*v2_3.Package{own},
		Relationships: []*v2_3.Relationship{relation("DOCUMENT", common.TypeRelationshipDescribe, own.PackageSPDXIdentifier)},
	}
	for _, part := range append([]*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}, info.Deps...) {
		dependency := module(part)
		document.Packages = append(document.Packages, dependency)
		document.Relationships = append(document.Relationships, relation(own.PackageSPDXIdentifier, common.TypeRelationshipDependsOn, dependency.PackageSPDXIdentifier))
	}
	return json.Write(document, to, json.Indent("  "))
}

// own is the program itself.
func (p Program) own(info *buildinfo.BuildInfo, digest string) *v2_3.Package {
	return &v2_3.Package{
		PackageName: p.Name, PackageSPDXIdentifier: "Package-" + element(p.Name), PackageVersion: p.Version,
		PackageDownloadLocation: unknown, PackageLicenseConcluded: unknown, PackageLicenseDeclared: p.License, PackageCopyrightText: unknown,
		PackageChecksums:          []common.Checksum{{Algorithm: common.SHA256, Value: digest}},
		PackageExternalReferences: []*v2_3.PackageExternalReference{purl(info.Main.Path, p.Version)}, PrimaryPackagePurpose: "APPLICATION",
	}
}

// module is one that the program has code of. One that another stands for is that other, unless that is a folder, which has no version.
func module(m *debug.Module) *v2_3.Package {
	if m.Replace != nil && m.Replace.Version != "" {
		m = m.Replace
	}
	return &v2_3.Package{
		PackageName: m.Path, PackageSPDXIdentifier: "Package-" + element(m.Path+"-"+m.Version), PackageVersion: m.Version,
		PackageDownloadLocation: unknown, PackageLicenseConcluded: unknown, PackageLicenseDeclared: unknown, PackageCopyrightText: unknown,
		PackageExternalReferences: []*v2_3.PackageExternalReference{purl(m.Path, m.Version)}, PrimaryPackagePurpose: "LIBRARY",
	}
}

// purl is the name by which databases of vulnerabilities know a Go module.
func purl(path, version string) *v2_3.PackageExternalReference {
	return &v2_3.PackageExternalReference{
		Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B"),
	}
}

func relation(from common.ElementID, how string, to common.ElementID) *v2_3.Relationship {
	return &v2_3.Relationship{RefA: common.MakeDocElementID("", string(from)), Relationship: how, RefB: common.MakeDocElementID("", string(to))}
}

// element makes a text one that an SPDX identifier may have.
func element(text string) common.ElementID {
	return common.ElementID(regexp.MustCompile(`[^A-Za-z0-9.-]+`).ReplaceAllString(text, "-"))
}

func digestOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
