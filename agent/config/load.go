package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxFileBytes bounds the size of a configuration file. It is far above the size of real
// files and far below the memory of a board.
const maxFileBytes = 1 << 20

// Load reads the files that the flags name and returns the effective configuration
// for a machine with memory bytes of memory, 0 if not known. It does not call
// Validate. A decoding error names the file, the document and the field. The caller
// should log the warnings, also after an error.
func (f *Flags) Load(memory int64) (*Config, []Warning, error) {
	var base *file
	if f.configFile != "" {
		read, err := readFile(f.configFile)
		if err != nil {
			return nil, nil, err
		}
		base = &read
	}
	dropIns, warnings, err := readDropIns(f.configDir)
	if err != nil {
		return nil, warnings, err
	}
	cfg, more, err := f.build(base, dropIns, os.Hostname, memory)
	return cfg, append(warnings, more...), err
}

// build is Load without reading files.
func (f *Flags) build(base *file, dropIns []file, hostname func() (string, error), memory int64) (*Config, []Warning, error) {
	var (
		bottom   layer
		warnings []Warning
		err      error
	)
	if base != nil {
		if bottom, warnings, err = base.parse(); err != nil {
			return nil, warnings, err
		}
	}
	var kubeletLayers []map[string]any
	tinylet := bottom.tinylet
	for _, dropIn := range dropIns {
		top, more, err := dropIn.parse()
		warnings = append(warnings, more...)
		if err != nil {
			return nil, warnings, err
		}
		if top.kubelet != nil {
			kubeletLayers = append(kubeletLayers, top.kubelet)
		}
		tinylet = merge(tinylet, top.tinylet)
	}
	cfg := &Config{
		Kubeconfig:          f.kubeconfig,
		BootstrapKubeconfig: f.bootstrap,
		NodeLabels:          f.nodeLabels,
		CloudProvider:       f.cloudProvider,
	}
	if cfg.Kubelet, err = mergeKubelet(bottom.kubelet, kubeletLayers, memory); err != nil {
		return nil, warnings, err
	}
	if err := convert(tinylet, &cfg.Tinylet); err != nil {
		return nil, warnings, err
	}
	if cfg.Tinylet.Metered {
		set, err := explicitSettings(bottom.kubelet, kubeletLayers)
		if err != nil {
			return nil, warnings, err
		}
		setMeteredDefaults(&cfg.Kubelet, &set)
	}
	for _, value := range f.bound {
		if err := value.apply(&cfg.Kubelet); err != nil {
			return nil, warnings, err
		}
	}
	if f.set.Changed("logging-format") {
		cfg.Tinylet.LogFormat = ""
	}
	setTinyletDefaults(&cfg.Tinylet, &cfg.Kubelet, cfg.Kubeconfig != "")
	if err := f.derive(cfg, hostname); err != nil {
		return nil, warnings, err
	}
	return cfg, slices.Concat(warnings, f.ignoredFlagWarnings(), unsupportedWarnings(&cfg.Kubelet), gateWarnings(&cfg.Tinylet, cfg.Kubelet.FeatureGates), settingWarnings(cfg), renewalWarnings(cfg), memoryWarnings(&cfg.Kubelet, memory)), nil
}

// derive sets the fields of cfg that depend on flags and on other fields:
// endpoints, absolute paths, the node's name and addresses.
func (f *Flags) derive(cfg *Config, hostname func() (string, error)) error {
	kc := &cfg.Kubelet
	kc.ContainerRuntimeEndpoint = endpoint(kc.ContainerRuntimeEndpoint)
	kc.ImageServiceEndpoint = endpoint(kc.ImageServiceEndpoint)
	setDefault(&kc.ImageServiceEndpoint, kc.ContainerRuntimeEndpoint)

	rootDir, certDir := f.rootDir, f.certDir
	setDefault(&rootDir, DefaultRootDir)
	setDefault(&certDir, defaultCertDir)
	for _, path := range []*string{&rootDir, &certDir, &kc.StaticPodPath, &kc.PodLogsDir, &cfg.Kubeconfig, &cfg.BootstrapKubeconfig} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("make %q absolute: %w", *path, err)
		}
		*path = abs
	}
	cfg.Paths = Paths{
		Root:          rootDir,
		Pods:          filepath.Join(rootDir, "pods"),
		State:         filepath.Join(rootDir, "tinylet"),
		PKI:           certDir,
		PodLogs:       kc.PodLogsDir,
		ContainerLogs: defaultContainerLogs,
	}

	name := f.hostnameOverride
	if name == "" {
		var err error
		if name, err = hostname(); err != nil {
			return fmt.Errorf("read host name: %w; set --hostname-override", err)
		}
	}
	cfg.NodeName = strings.ToLower(strings.TrimSpace(name))

	for text := range strings.SplitSeq(f.nodeIP, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("flag --node-ip: %q is not an IP address", text)
		}
		cfg.NodeIPs = append(cfg.NodeIPs, addr.Unmap())
	}
	return nil
}

// endpoint adds the scheme unix:// to an absolute path.
func endpoint(address string) string {
	if strings.HasPrefix(address, "/") {
		return "unix://" + address
	}
	return address
}

const (
	noSource       = "no config source configured"
	openStatusPage = "status page requires no token"
)

// settingWarnings returns warnings about settings that are valid but probably not intended.
func settingWarnings(cfg *Config) (out []Warning) {
	if cfg.Kubelet.StaticPodPath == "" && cfg.Kubelet.StaticPodURL == "" && cfg.Kubeconfig == "" {
		out = append(out, Warning{noSource, []slog.Attr{
			slog.String("effect", "no pods will run"),
			slog.String("remedy", "set staticPodPath, staticPodURL or --kubeconfig"),
		}})
	}
	if *cfg.Tinylet.StatusPage && cfg.Tinylet.StatusPageTokenFile == "" && cfg.Kubeconfig != "" {
		out = append(out, Warning{openStatusPage, []slog.Attr{
			slog.String("effect", "every process that can connect to the loopback address can read the pods of all namespaces, their messages and their events"),
			slog.String("remedy", "set statusPageTokenFile, or leave statusPage unset"),
		}})
	}
	return out
}

// readFile reads a configuration file. The name in the result is absolute, because
// relative paths in the file are relative to its directory.
func readFile(path string) (file, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return file{}, fmt.Errorf("make %q absolute: %w", path, err)
	}
	in, err := os.Open(abs)
	if err != nil {
		return file{}, fmt.Errorf("read configuration: %w", err)
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, maxFileBytes+1))
	if err != nil {
		return file{}, fmt.Errorf("read configuration %s: %w", abs, err)
	}
	if len(data) > maxFileBytes {
		return file{}, fmt.Errorf("read configuration %s: file has more than %d bytes", abs, maxFileBytes)
	}
	return file{name: abs, data: data}, nil
}

// readDropIns reads a directory's *.conf files, those in subdirectories included,
// in lexical order of their paths (cmd/kubelet/app/server.go).
func readDropIns(dir string) ([]file, []Warning, error) {
	if dir == "" {
		return nil, nil, nil
	}
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read configuration directory: %w", err)
	}
	var (
		files    []file
		warnings []Warning
	)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == root && !entry.IsDir() {
			return errors.New(path + " is not a directory")
		}
		if entry.IsDir() {
			return nil
		}
		switch ext := filepath.Ext(path); {
		case ext == ".conf":
			f, err := readFile(path)
			files = append(files, f)
			return err
		case slices.Contains([]string{".yaml", ".yml", ".json"}, ext):
			warnings = append(warnings, Warning{"ignore configuration file without .conf suffix", []slog.Attr{slog.String("file", path)}})
		}
		return nil
	})
	if err != nil {
		return nil, warnings, fmt.Errorf("read configuration directory %s: %w", dir, err)
	}
	return files, warnings, nil
}
