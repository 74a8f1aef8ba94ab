// Package imagetar writes container images of static programs as archives in
// the OCI image layout (image-spec, image-layout.md), ready for import into
// containerd. Equal content makes equal archives.
package imagetar

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// File is one entry of an image's file system. With Link set it is a symbolic
// link; a name that ends in a slash is a folder.
type File struct {
	Name string
	Mode fs.FileMode // permission, set-UID, set-GID and sticky bits
	Data []byte
	Link string
	// UID and GID own a file or a folder, unless it is a link.
	UID, GID int
}

// Image is one image for one platform.
type Image struct {
	Name       string // with tag, such as localhost/busybox:1
	GOARCH     string
	Entrypoint []string
	Cmd        []string
	Env        []string
	User       string
	Volumes    []string
	Files      []File
}

// Media types of the OCI image specification.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

// Write writes an archive that holds all images.
func Write(w io.Writer, images ...Image) error {
	a := &archive{w: tar.NewWriter(w), have: map[string]bool{}}
	if err := a.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	index := map[string]any{"schemaVersion": 2, "mediaType": typeIndex}
	var manifests []descriptor
	for _, im := range images {
		d, err := a.image(im)
		if err != nil {
			return fmt.Errorf("write image %s: %w", im.Name, err)
		}
		manifests = append(manifests, d)
	}
	index["manifests"] = manifests
	b, err := json.Marshal(index)
	if err != nil {
		return fmt.Errorf("encode image index: %w", err)
	}
	if err := a.file("index.json", b); err != nil {
		return err
	}
	if err := a.w.Close(); err != nil {
		return fmt.Errorf("end image archive: %w", err)
	}
	return nil
}

// archive is one layout being written.
type archive struct {
	w    *tar.Writer
	have map[string]bool
}

func (a *archive) image(im Image) (descriptor, error) {
	p, err := platformOf(im.GOARCH)
	if err != nil {
		return descriptor{}, err
	}
	tag := im.Name[strings.LastIndexByte(im.Name, '/')+1:]
	_, tag, ok := strings.Cut(tag, ":")
	if !ok || tag == "" {
		return descriptor{}, fmt.Errorf("name %q has no tag", im.Name)
	}
	content, err := layer(im.Files)
	if err != nil {
		return descriptor{}, err
	}
	layerDesc, err := a.blob(typeLayer, content)
	if err != nil {
		return descriptor{}, err
	}
	config, err := json.Marshal(configOf(im, p, layerDesc.Digest))
	if err != nil {
		return descriptor{}, err
	}
	configDesc, err := a.blob(typeConfig, config)
	if err != nil {
		return descriptor{}, err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest,
		"config": configDesc, "layers": []descriptor{layerDesc},
	})
	if err != nil {
		return descriptor{}, err
	}
	d, err := a.blob(typeManifest, manifest)
	if err != nil {
		return descriptor{}, err
	}
	d.Platform = &p
	d.Annotations = map[string]string{
		"io.containerd.image.name":          im.Name,
		"org.opencontainers.image.ref.name": tag,
	}
	return d, nil
}

func platformOf(goarch string) (platform, error) {
	switch goarch {
	case "arm64":
		return platform{Architecture: "arm64", OS: "linux", Variant: "v8"}, nil
	case "arm":
		return platform{Architecture: "arm", OS: "linux", Variant: "v7"}, nil
	case "amd64":
		return platform{Architecture: "amd64", OS: "linux"}, nil
	}
	return platform{}, fmt.Errorf("architecture %q is unknown", goarch)
}

func configOf(im Image, p platform, diffID string) any {
	run := map[string]any{}
	if len(im.Entrypoint) > 0 {
		run["Entrypoint"] = im.Entrypoint
	}
	if len(im.Cmd) > 0 {
		run["Cmd"] = im.Cmd
	}
	if len(im.Env) > 0 {
		run["Env"] = im.Env
	}
	if im.User != "" {
		run["User"] = im.User
	}
	if len(im.Volumes) > 0 {
		volumes := map[string]struct{}{}
		for _, v := range im.Volumes {
			volumes[v] = struct{}{}
		}
		run["Volumes"] = volumes
	}
	c := map[string]any{
		"architecture": p.Architecture, "os": p.OS, "config": run,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{diffID}},
	}
	if p.Variant != "" {
		c["variant"] = p.Variant
	}
	return c
}

// layer makes an uncompressed layer with the missing parent folders added.
func layer(files []File) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	have := map[string]bool{".": true}
	var dir func(name string, mode int64, uid, gid int) error
	dir = func(name string, mode int64, uid, gid int) error {
		if have[name] {
			return nil
		}
		if err := dir(path.Dir(name), 0o755, 0, 0); err != nil {
			return err
		}
		have[name] = true
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: uid, Gid: gid})
	}
	for _, f := range files {
		name := strings.TrimPrefix(path.Clean("/"+f.Name), "/")
		mode := int64(f.Mode.Perm())
		for bit, of := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
			if f.Mode&bit != 0 {
				mode |= of
			}
		}
		if name == "" {
			return nil, fmt.Errorf("file named %q", f.Name)
		}
		if strings.HasSuffix(f.Name, "/") {
			if err := dir(name, mode, f.UID, f.GID); err != nil {
				return nil, err
			}
			continue
		}
		if err := dir(path.Dir(name), 0o755, 0, 0); err != nil {
			return nil, err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(f.Data)), Uid: f.UID, Gid: f.GID}
		if f.Link != "" {
			h = &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Mode: 0o777, Linkname: f.Link}
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (a *archive) blob(mediaType string, b []byte) (descriptor, error) {
	sum := sha256.Sum256(b)
	name := hex.EncodeToString(sum[:])
	d := descriptor{MediaType: mediaType, Digest: "sha256:" + name, Size: int64(len(b))}
	if a.have[name] {
		return d, nil
	}
	a.have[name] = true
	return d, a.file("blobs/sha256/"+name, b)
}

func (a *archive) file(name string, b []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(b))}
	if err := a.w.WriteHeader(h); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if _, err := a.w.Write(b); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
