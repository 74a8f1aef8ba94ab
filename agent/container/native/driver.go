// Package native is a driver for container.Runtime without containerd's CRI plugin. containerd
// keeps images, snapshots and records (store), the keeper runs the containers (keeper), and
// the namespaces of a pod are bind mounts (sandbox). A pod has a process of its own only if its
// containers share a PID namespace.
//
// # State
//
// A sandbox or container exists as long as its record in containerd: the record is created
// before anything else of it, and deleted last. What ends with the boot is below Config.Dir, on
// a tmpfs:
//
//	sandboxes/<id>/   state.json, and the files and mounts of the sandbox
//	containers/<id>/  state.json, the bundle with rootfs, and process.json for commands
//	exec/             the files of commands
//
// What containers write is on the disk: their snapshots, and Config.VolumeDir.
package native

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/native/keeper"
	"github.com/tinylet/tinylet/agent/container/native/oci"
	"github.com/tinylet/tinylet/agent/container/native/sessions"
	"github.com/tinylet/tinylet/agent/container/native/spec"
	"github.com/tinylet/tinylet/agent/container/native/store"
	"github.com/tinylet/tinylet/cgroups"
)

// Handler is a runtime handler.
type Handler struct {
	Program  oci.Program
	Features spec.Handler
	// SendsTerminal is that of commands.
	SendsTerminal bool
}

// NewHandler returns the handler of an OCI runtime program with what that can do.
func NewHandler(ctx context.Context, p oci.Program) (Handler, error) {
	f, err := p.Features(ctx)
	if err != nil {
		return Handler{}, err
	}
	h := Handler{Program: p, SendsTerminal: oci.SendsTerminal(f), Features: spec.Handler{RecursiveReadOnly: slices.Contains(f.MountOptions, "rro")}}
	if linux := f.Linux; linux != nil && linux.MountExtensions != nil && linux.MountExtensions.IDMap != nil && linux.MountExtensions.IDMap.Enabled != nil {
		h.Features.IDMapMounts = *linux.MountExtensions.IDMap.Enabled
	}
	return h, nil
}

// Network connects sandboxes. Its methods are safe for concurrent use.
type Network interface {
	// Setup connects a network namespace, and returns the pod's addresses. It completes what
	// an interrupted call has left.
	Setup(ctx context.Context, sandboxID, netns string, config *runtimeapi.PodSandboxConfig) (ips []string, err error)
	// Teardown removes what Setup has made. It returns nil if there is nothing. netns is empty
	// if the namespace is gone, as after a boot.
	Teardown(ctx context.Context, sandboxID, netns string, config *runtimeapi.PodSandboxConfig) error
	// Problem returns why pods cannot be connected, or nil.
	Problem(ctx context.Context) error
}

// Config configures a driver.
type Config struct {
	Store  *store.Store
	Keeper keeper.Client
	// Handlers are the runtime handlers by name. That of "" is the default.
	Handlers map[string]Handler
	// Dir is the directory of the driver's files on a tmpfs. It becomes a private mount. All
	// users must be able to search the directories above it: with a user namespace, the OCI
	// runtime resolves the root file system as a user of the pod.
	Dir string
	// VolumeDir is the directory on the disk of the volumes of images, by container.
	VolumeDir string
	// NetNS is the directory of the network namespaces, such as /run/netns.
	NetNS   string
	Network Network
	// HostDirs are the directories with a hosts.toml for each registry, such as
	// /etc/containerd/certs.d.
	HostDirs []string
	// Received is called with the bytes that pulls have received, in parts. It may be nil.
	Received func(bytes int)
	Node     *spec.Node
	// Systemd reports whether the containers' cgroups are scopes of systemd. Poller, which must
	// run, then watches them; else it may be nil.
	Systemd bool
	Poller  *cgroups.Poller
	// Cgroups has the cgroups of the containers.
	Cgroups *cgroups.Tree
	Log     *slog.Logger
}

// Driver implements container.Runtime. It is safe for concurrent use.
type Driver struct {
	Config

	mu         sync.Mutex
	sandboxes  map[string]*podSandbox
	containers map[string]*podContainer
	firsts     map[string]*podSandbox // sandboxes with a first process, by ID
	names      map[string]string      // IDs by the names that they reserve
	pulls      turn                   // one at a time
	events     subscribers
	sessions   *sessions.Server
}

// New returns a driver with the sandboxes and containers of before. Run must be called.
func New(ctx context.Context, c Config) (*Driver, error) {
	d := &Driver{Config: c, pulls: newTurn(), sandboxes: map[string]*podSandbox{}, containers: map[string]*podContainer{}, firsts: map[string]*podSandbox{}, names: map[string]string{}}
	if _, ok := c.Handlers[""]; !ok {
		return nil, errors.New("start native driver: there is no default handler")
	}
	if c.Systemd && c.Poller == nil {
		return nil, errors.New("start native driver: there is no poller of the scopes of systemd")
	}
	if c.Systemd {
		d.Handlers = map[string]Handler{}
		for name, h := range c.Handlers {
			d.Handlers[name] = Handler{Program: append(slices.Clone(h.Program), "--systemd-cgroup"), Features: h.Features, SendsTerminal: h.SendsTerminal}
		}
	}
	for _, dir := range []string{c.Dir, d.sandboxDir(""), d.containerDir(""), d.execDir()} {
		mode := os.FileMode(0o700)
		if dir != d.execDir() {
			mode = 0o711 // containers with other users reach their files
		}
		if err := os.MkdirAll(dir, mode); err != nil {
			return nil, fmt.Errorf("start native driver: %w", err)
		}
	}
	if err := os.MkdirAll(c.VolumeDir, 0o711); err != nil {
		return nil, fmt.Errorf("start native driver: %w", err)
	}
	if err := makePrivate(c.Dir); err != nil {
		return nil, fmt.Errorf("start native driver: %w", err)
	}
	if err := d.recover(ctx); err != nil {
		return nil, fmt.Errorf("start native driver: %w", err)
	}
	return d, nil
}

// makePrivate makes a directory a private mount of its own: mounts in it do not appear in other
// mount namespaces, which would keep them.
func makePrivate(dir string) error {
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err == nil {
		return nil
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %q: %w", dir, err)
	}
	// What is mounted on /run is often noexec, which the first process of a pod could not be
	// started from.
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("mount %q again: %w", dir, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mount %q private: %w", dir, err)
	}
	return nil
}

func (d *Driver) sandboxDir(id string) string   { return filepath.Join(d.Dir, "sandboxes", id) }
func (d *Driver) containerDir(id string) string { return filepath.Join(d.Dir, "containers", id) }
func (d *Driver) execDir() string               { return filepath.Join(d.Dir, "exec") }

// newID returns an ID with the form of containerd's.
func newID() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // it never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// errReserved means that a name is in use.
var errReserved = errors.New("name is reserved")

// reserve reserves a name for an ID.
func (d *Driver) reserve(name, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if other := d.names[name]; other != "" {
		return fmt.Errorf("%w: %s is that of %q", errReserved, name, other)
	}
	d.names[name] = id
	return nil
}

func (d *Driver) release(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.names, name)
}

func sandboxName(m *runtimeapi.PodSandboxMetadata) string {
	return fmt.Sprintf("%s_%s_%s_%d", m.GetName(), m.GetNamespace(), m.GetUid(), m.GetAttempt())
}

func containerName(m *runtimeapi.ContainerMetadata, pod *runtimeapi.PodSandboxMetadata) string {
	return fmt.Sprintf("%s_%s_%s_%s_%d", m.GetName(), pod.GetName(), pod.GetNamespace(), pod.GetUid(), m.GetAttempt())
}

// findSandbox returns a sandbox, or nil.
func (d *Driver) findSandbox(id string) *podSandbox {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sandboxes[id]
}

// sandbox returns a sandbox, or ErrNotFound.
func (d *Driver) sandbox(id string) (*podSandbox, error) {
	if s := d.findSandbox(id); s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("sandbox %q: %w", id, container.ErrNotFound)
}

// findContainer returns a container, or nil.
func (d *Driver) findContainer(id string) *podContainer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.containers[id]
}

// container returns a container, or ErrNotFound.
func (d *Driver) container(id string) (*podContainer, error) {
	if c := d.findContainer(id); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("container %q: %w", id, container.ErrNotFound)
}

// inSandbox returns the containers of a sandbox.
func (d *Driver) inSandbox(id string) []*podContainer {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*podContainer
	for _, c := range d.containers {
		if c.sandboxID == id {
			out = append(out, c)
		}
	}
	return out
}

// turn lets one call at a time work on an object. Unlike a mutex, a wait for it ends with the
// context.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return cancelled(ctx)
	}
}

func (t turn) release() { <-t }

// cancelled returns why a call has ended before its work, or nil if its context has not ended. A
// call beyond its deadline is ErrTimeout, too.
func cancelled(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", container.ErrTimeout, context.Cause(ctx))
	}
	return context.Cause(ctx)
}

// undoTimeout limits the removal of what an unfinished call has made. The call's own context
// may have ended.
const undoTimeout = 30 * time.Second

// undo returns a context for the removal of what a call has made.
func undo(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
}

var _ container.Runtime = (*Driver)(nil)
