package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels of the records.
const (
	labelKind    = "tinylet.dev/kind"
	labelSandbox = "tinylet.dev/sandbox"
	labelExit    = "tinylet.dev/exit"
)

// Kinds of records.
const (
	kindSandbox   = "sandbox"
	kindContainer = "container"
)

// runtimeName and specType are what containerd requires of a container. Nothing reads them.
const (
	runtimeName = "tinylet.dev/native"
	specType    = "types.containerd.io/opencontainers/runtime-spec/1/Spec"
	extension   = "tinylet.dev/config"
)

// Record is a sandbox or a container. It lives until it is removed, and has what is needed of
// it after a reboot. It has neither the environment nor the arguments of a container, which
// may have values of Secrets.
type Record struct {
	ID string
	// Sandbox is the config of a sandbox, or that of a container's sandbox as far as its
	// containers need it after a reboot: nil for a container.
	Sandbox *runtimeapi.PodSandboxConfig
	// Container is the config of a container, nil for a sandbox.
	Container *runtimeapi.ContainerConfig
	SandboxID string // of a container
	Handler   string // of a sandbox
	// Image is the name of the image, and Snapshot the key of the root file system's
	// snapshot.
	Image, Snapshot string
	CreatedAt       time.Time
	// Exit is the end of a container, nil if it is not recorded.
	Exit *Exit
}

// Exit is the end of a container.
type Exit struct {
	Code int32
	// StartedAt and FinishedAt are in nanoseconds since 1970. StartedAt is 0 for a container
	// that has not started.
	StartedAt, FinishedAt int64
	// Reason and Message are those of the status.
	Reason, Message string
}

// Create stores a record.
func (s *Store) Create(ctx context.Context, r *Record) error {
	c, err := s.encode(r)
	if err != nil {
		return fmt.Errorf("create record of %s: %w", r.ID, err)
	}
	_, err = call(ctx, func(ctx context.Context) (containers.Container, error) {
		return s.client.ContainerService().Create(ctx, c)
	}, "create record of %s", r.ID)
	return err
}

// Records returns all records.
func (s *Store) Records(ctx context.Context) ([]Record, error) {
	all, err := call(ctx, func(ctx context.Context) ([]containers.Container, error) {
		return s.client.ContainerService().List(ctx, `labels."`+labelKind+`"`)
	}, "list records")
	if err != nil {
		return nil, err
	}
	out := make([]Record, 0, len(all))
	for i := range all {
		r, err := decode(&all[i])
		if err != nil {
			return nil, fmt.Errorf("decode record of %s: %w", all[i].ID, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// Finish stores the end of a container.
func (s *Store) Finish(ctx context.Context, id string, e Exit) error {
	_, err := call(ctx, func(ctx context.Context) (containers.Container, error) {
		return s.client.ContainerService().Update(ctx, containers.Container{ID: id, Labels: map[string]string{labelExit: e.String()}}, "labels."+labelExit)
	}, "store end of container %s", id)
	return err
}

// Delete deletes a record. It returns nil if there is none.
func (s *Store) Delete(ctx context.Context, id string) error {
	_, err := call(ctx, func(ctx context.Context) (struct{}, error) {
		err := s.client.ContainerService().Delete(ctx, id)
		if errdefs.IsNotFound(err) {
			err = nil
		}
		return struct{}{}, err
	}, "delete record of %s", id)
	return err
}

func (s *Store) encode(r *Record) (containers.Container, error) {
	c := containers.Container{
		ID: r.ID, Image: r.Image, SnapshotKey: r.Snapshot, CreatedAt: r.CreatedAt,
		Runtime: containers.RuntimeInfo{Name: runtimeName}, Spec: &anypb.Any{TypeUrl: specType, Value: []byte("{}")},
		Labels: map[string]string{labelKind: kindContainer, labelSandbox: r.SandboxID},
	}
	var config proto.Message = Durable(r.Container)
	if r.Container == nil {
		c.Labels = map[string]string{labelKind: kindSandbox, labelHandler: r.Handler}
		config = r.Sandbox
	}
	if r.Snapshot != "" {
		c.Snapshotter = s.snapshotter
	}
	if r.Exit != nil {
		c.Labels[labelExit] = r.Exit.String()
	}
	data, err := proto.Marshal(config)
	if err != nil {
		return c, err
	}
	c.Extensions = map[string]typeurl.Any{extension: &anypb.Any{TypeUrl: extension, Value: data}}
	return c, nil
}

const labelHandler = "tinylet.dev/handler"

func decode(c *containers.Container) (Record, error) {
	r := Record{
		ID: c.ID, SandboxID: c.Labels[labelSandbox], Handler: c.Labels[labelHandler], Image: c.Image, Snapshot: c.SnapshotKey, CreatedAt: c.CreatedAt,
	}
	var config proto.Message
	switch kind := c.Labels[labelKind]; kind {
	case kindSandbox:
		r.Sandbox = new(runtimeapi.PodSandboxConfig)
		config = r.Sandbox
	case kindContainer:
		r.Container = new(runtimeapi.ContainerConfig)
		config = r.Container
	default:
		return r, fmt.Errorf("unknown kind %q", kind)
	}
	data := c.Extensions[extension]
	if data == nil {
		return r, fmt.Errorf("it has no config")
	}
	if err := proto.Unmarshal(data.GetValue(), config); err != nil {
		return r, err
	}
	if text, ok := c.Labels[labelExit]; ok {
		e, err := parseExit(text)
		if err != nil {
			return r, err
		}
		r.Exit = &e
	}
	return r, nil
}

// Durable returns the part of a container's config that is stored on the disk.
func Durable(c *runtimeapi.ContainerConfig) *runtimeapi.ContainerConfig {
	if c == nil {
		return nil
	}
	return &runtimeapi.ContainerConfig{
		Metadata: c.Metadata, Image: c.Image, Labels: c.Labels, Annotations: c.Annotations, LogPath: c.LogPath, StopSignal: c.StopSignal,
	}
}

// maxExitText bounds reason and message of an end in bytes: a label of containerd has 4096
// bytes with its key.
const maxExitText = 3 << 10

// String is the text of the label: code, times in nanoseconds since 1970, reason and message.
func (e Exit) String() string {
	text := fmt.Sprintf("%d %d %d %s ", e.Code, e.StartedAt, e.FinishedAt, e.Reason)
	// What is no UTF-8 cannot be sent.
	return text + strings.ToValidUTF8(e.Message[:min(len(e.Message), maxExitText)], "")
}

func parseExit(text string) (Exit, error) {
	fields := strings.SplitN(text, " ", 5)
	if len(fields) != 5 {
		return Exit{}, fmt.Errorf("end %q", text)
	}
	code, err := strconv.ParseInt(fields[0], 10, 32)
	if err != nil {
		return Exit{}, fmt.Errorf("end %q: %w", text, err)
	}
	started, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return Exit{}, fmt.Errorf("end %q: %w", text, err)
	}
	finished, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return Exit{}, fmt.Errorf("end %q: %w", text, err)
	}
	return Exit{Code: int32(code), StartedAt: started, FinishedAt: finished, Reason: fields[3], Message: fields[4]}, nil
}
