package native

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/native/sandbox"
	"github.com/tinylet/tinylet/agent/container/native/spec"
	"github.com/tinylet/tinylet/agent/container/native/store"
	"github.com/tinylet/tinylet/net/netns"
)

// podSandbox is a sandbox.
type podSandbox struct {
	turn    turn
	id      string
	config  *runtimeapi.PodSandboxConfig // not modified
	handler string
	created time.Time
	// thisBoot reports whether a recovered sandbox was created in this boot.
	thisBoot bool

	mu    sync.Mutex
	ready bool
	ips   []string
	first firstProcess
	// stopping reports whether a stop has begun and not completed.
	stopping bool
}

// sandboxState is what a sandbox has until the next boot.
type sandboxState struct {
	Ready bool     `json:"ready"`
	IPs   []string `json:"ips,omitempty"`
}

func hostNetwork(c *runtimeapi.PodSandboxConfig) bool {
	return c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

func sharedPID(c *runtimeapi.PodSandboxConfig) bool {
	return c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() == runtimeapi.NamespaceMode_POD
}

// namespaces describes the namespaces and files of a sandbox.
func (d *Driver) namespaces(id string, c *runtimeapi.PodSandboxConfig) *sandbox.Config {
	out := &sandbox.Config{
		Dir:       filepath.Join(d.sandboxDir(id), "pod"),
		HostIPC:   c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetIpc() == runtimeapi.NamespaceMode_NODE,
		SharedPID: sharedPID(c), Hostname: c.GetHostname(), Sysctls: c.GetLinux().GetSysctls(), DNS: resolvConf(c.GetDnsConfig()),
	}
	if m := idMap(c); m != (store.IDMap{}) {
		out.UIDs, out.GIDs = processIDs(m.UIDs), processIDs(m.GIDs)
	}
	if !hostNetwork(c) {
		out.NetNS = filepath.Join(d.NetNS, id)
	}
	return out
}

// resolvConf returns the content of /etc/resolv.conf (resolv.conf(5)).
func resolvConf(c *runtimeapi.DNSConfig) []byte {
	var out strings.Builder
	if len(c.GetSearches()) > 0 {
		fmt.Fprintf(&out, "search %s\n", strings.Join(c.GetSearches(), " "))
	}
	for _, server := range c.GetServers() {
		fmt.Fprintf(&out, "nameserver %s\n", server)
	}
	if len(c.GetOptions()) > 0 {
		fmt.Fprintf(&out, "options %s\n", strings.Join(c.GetOptions(), " "))
	}
	return []byte(out.String())
}

// check returns an error for a config that the driver cannot run.
func (d *Driver) check(ctx context.Context, c *runtimeapi.PodSandboxConfig, handler string) error {
	switch {
	case c.GetMetadata() == nil:
		return errors.New("sandbox config has no metadata")
	case d.Handlers[handler].Program == nil:
		return fmt.Errorf("no runtime for %q is configured", handler)
	case c.GetLinux().GetCgroupParent() != "" && d.Systemd != spec.IsSlice(c.GetLinux().GetCgroupParent()):
		return fmt.Errorf("linux.cgroup_parent %q is of another cgroup driver; set cgroupDriver of the kubelet's configuration to that of the container runtime", c.GetLinux().GetCgroupParent())
	case hostNetwork(c) && c.GetHostname() != "":
		return errors.New("a hostname needs a UTS namespace of the pod's own, which a pod on the host's network has not")
	}
	uids, _, err := spec.UserMappings(usersOf(c))
	switch {
	case err != nil:
		return fmt.Errorf("namespace_options.userns_options: %w", err)
	case len(uids) == 0:
		return nil
	case !d.Handlers[handler].Features.IDMapMounts:
		return fmt.Errorf("a user namespace needs an OCI runtime with idmapped mounts, such as crun 1.9 or runc 1.2: %w", container.ErrUnsupported)
	}
	return d.Store.CheckIDMaps(ctx)
}

func usersOf(c *runtimeapi.PodSandboxConfig) *runtimeapi.UserNamespace {
	return c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
}

// idMap returns the mapping of the owners of files in a pod: the zero value without a user
// namespace. The config was checked.
func idMap(c *runtimeapi.PodSandboxConfig) store.IDMap {
	uids, gids, err := spec.UserMappings(usersOf(c))
	if err != nil || len(uids) == 0 || len(gids) == 0 {
		return store.IDMap{}
	}
	return store.IDMap{UIDs: uids[0], GIDs: gids[0]}
}

func processIDs(m specs.LinuxIDMapping) []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: int(m.ContainerID), HostID: int(m.HostID), Size: int(m.Size)}}
}

// RunPodSandbox implements container.Sandboxes.
func (d *Driver) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	if err := d.check(ctx, config, handler); err != nil {
		return "", fmt.Errorf("run sandbox: %w", err)
	}
	s := &podSandbox{turn: newTurn(), id: newID(), config: proto.CloneOf(config), handler: handler, created: time.Now()}
	if d.Systemd && s.config.GetLinux().GetCgroupParent() == "" {
		if s.config.Linux == nil {
			s.config.Linux = new(runtimeapi.LinuxPodSandboxConfig)
		}
		s.config.Linux.CgroupParent = "system.slice" // a scope is in a slice
	}
	name := sandboxName(config.GetMetadata())
	if err := d.reserve(name, s.id); err != nil {
		return "", fmt.Errorf("run sandbox: %w", err)
	}
	if err := d.runSandbox(ctx, s); err != nil {
		undone, cancel := undo(ctx)
		defer cancel()
		if failed := d.discardSandbox(undone, s); failed != nil {
			err = errors.Join(err, failed)
			d.addSandbox(s) // for the caller to stop and remove
		} else {
			d.release(name)
		}
		return "", fmt.Errorf("run sandbox: %w", err)
	}
	d.addSandbox(s)
	d.emit(s, s.id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	d.emit(s, s.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return s.id, nil
}

func (d *Driver) addSandbox(s *podSandbox) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sandboxes[s.id] = s
}

func (d *Driver) runSandbox(ctx context.Context, s *podSandbox) error {
	if err := d.Store.Create(ctx, &store.Record{ID: s.id, Sandbox: s.config, Handler: s.handler, CreatedAt: s.created}); err != nil {
		return err
	}
	if err := s.save(d); err != nil {
		return err
	}
	namespaces := d.namespaces(s.id, s.config)
	if err := sandbox.Create(namespaces); err != nil {
		return err
	}
	if namespaces.NetNS != "" {
		ips, err := d.Network.Setup(ctx, s.id, namespaces.NetNS, s.config)
		if err != nil {
			return err
		}
		s.ips = ips
	}
	if sharedPID(s.config) {
		if err := d.startFirst(ctx, s, namespaces); err != nil {
			return err
		}
	}
	if !s.makeReady() {
		return errors.New("the first process of the PID namespace has ended")
	}
	return s.save(d)
}

// makeReady makes the sandbox ready, unless its first process has ended.
func (s *podSandbox) makeReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.first.ended: // nil without one
		return false
	default:
		s.ready = true
		return true
	}
}

// save writes what the sandbox has until the next boot.
func (s *podSandbox) save(d *Driver) error {
	s.mu.Lock()
	state := sandboxState{s.ready, s.ips}
	s.mu.Unlock()
	return saveState(d.sandboxDir(s.id), state)
}

// dismantle removes the first process, the network, the namespaces and the files of a sandbox.
func (d *Driver) dismantle(ctx context.Context, s *podSandbox) error {
	if err := d.stopFirst(ctx, s); err != nil {
		return err
	}
	namespaces := d.namespaces(s.id, s.config)
	if !hostNetwork(s.config) {
		path := namespaces.NetNS
		if ns, err := netns.Open(path); err == nil {
			_ = ns.Close()
		} else {
			path = ""
		}
		if err := d.Network.Teardown(ctx, s.id, path, s.config); err != nil {
			return err
		}
	}
	return sandbox.Remove(namespaces)
}

// discardSandbox removes everything of a sandbox without containers, its record last.
func (d *Driver) discardSandbox(ctx context.Context, s *podSandbox) error {
	if err := d.dismantle(ctx, s); err != nil {
		return err
	}
	if err := removeState(d.sandboxDir(s.id)); err != nil {
		return err
	}
	return d.Store.Delete(ctx, s.id)
}

// StopPodSandbox implements container.Sandboxes.
func (d *Driver) StopPodSandbox(ctx context.Context, id string) error {
	s := d.findSandbox(id)
	if s == nil {
		return nil // it was removed
	}
	if err := d.stopSandbox(ctx, s); err != nil {
		return fmt.Errorf("stop sandbox %q: %w", id, err)
	}
	return nil
}

func (d *Driver) stopSandbox(ctx context.Context, s *podSandbox) error {
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.release()
	// Nothing is started in it from here on, and what is being started has started.
	s.mu.Lock()
	s.stopping = s.stopping || s.ready
	s.ready = false
	s.mu.Unlock()
	if err := s.save(d); err != nil {
		return err
	}
	for _, c := range d.inSandbox(s.id) {
		if err := d.killWhole(ctx, c); err != nil {
			return err
		}
	}
	if err := d.dismantle(ctx, s); err != nil {
		return err
	}
	s.mu.Lock()
	was := s.stopping
	s.stopping, s.ips = false, nil
	s.mu.Unlock()
	if err := s.save(d); err != nil {
		return err
	}
	if was {
		d.emit(s, s.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
	return nil
}

// killWhole kills a container when no call starts it any longer.
func (d *Driver) killWhole(ctx context.Context, c *podContainer) error {
	if err := c.turn.take(ctx); err != nil {
		return err
	}
	defer c.turn.release()
	return d.kill(ctx, c)
}

// RemovePodSandbox implements container.Sandboxes.
func (d *Driver) RemovePodSandbox(ctx context.Context, id string) error {
	s := d.findSandbox(id)
	if s == nil {
		return nil // it was removed
	}
	if err := d.stopSandbox(ctx, s); err != nil {
		return fmt.Errorf("remove sandbox %q: %w", id, err)
	}
	for _, c := range d.inSandbox(id) {
		if err := d.RemoveContainer(ctx, c.id); err != nil {
			return fmt.Errorf("remove sandbox %q: %w", id, err)
		}
	}
	if err := d.discardSandbox(ctx, s); err != nil {
		return fmt.Errorf("remove sandbox %q: %w", id, err)
	}
	d.emit(s, id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	d.mu.Lock()
	delete(d.sandboxes, id)
	d.mu.Unlock()
	d.release(sandboxName(s.config.GetMetadata()))
	return nil
}

// PodSandboxStatus implements container.Sandboxes.
func (d *Driver) PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	if err := cancelled(ctx); err != nil {
		return nil, err
	}
	s, err := d.sandbox(id)
	if err != nil {
		return nil, err
	}
	return s.status(), nil
}

func (s *podSandbox) state() runtimeapi.PodSandboxState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (s *podSandbox) status() *runtimeapi.PodSandboxStatus {
	c := proto.CloneOf(s.config)
	out := &runtimeapi.PodSandboxStatus{
		Id: s.id, Metadata: c.GetMetadata(), State: s.state(), CreatedAt: s.created.UnixNano(), RuntimeHandler: s.handler,
		Network: &runtimeapi.PodSandboxNetworkStatus{}, Labels: c.GetLabels(), Annotations: c.GetAnnotations(),
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: c.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, ip := range s.ips {
		if i == 0 {
			out.Network.Ip = ip
			continue
		}
		out.Network.AdditionalIps = append(out.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
	}
	return out
}

// ListPodSandbox implements container.Sandboxes.
func (d *Driver) ListPodSandbox(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	if err := cancelled(ctx); err != nil {
		return nil, err
	}
	d.mu.Lock()
	all := make([]*podSandbox, 0, len(d.sandboxes))
	for _, s := range d.sandboxes {
		all = append(all, s)
	}
	d.mu.Unlock()
	slices.SortFunc(all, func(a, b *podSandbox) int { return a.created.Compare(b.created) })
	var out []*runtimeapi.PodSandbox
	for _, s := range all {
		state := s.state()
		if f.GetId() != "" && f.GetId() != s.id || f.GetState() != nil && f.GetState().GetState() != state || !selects(f.GetLabelSelector(), s.config.GetLabels()) {
			continue
		}
		c := proto.CloneOf(s.config)
		out = append(out, &runtimeapi.PodSandbox{
			Id: s.id, Metadata: c.GetMetadata(), State: state, CreatedAt: s.created.UnixNano(),
			Labels: c.GetLabels(), Annotations: c.GetAnnotations(), RuntimeHandler: s.handler,
		})
	}
	return out, nil
}

// selects reports whether labels have all values of a selector.
func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}
