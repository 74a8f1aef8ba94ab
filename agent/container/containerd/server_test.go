package containerd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// fields are a decoded message: every value of every field.
type fields map[protowire.Number][][]byte

func decode(t *testing.T, m []byte) fields {
	out := fields{}
	for len(m) > 0 {
		field, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			t.Errorf("a message is broken: %x", m)
			return out
		}
		m = m[n:]
		n = protowire.ConsumeFieldValue(field, kind, m)
		if n < 0 {
			t.Errorf("a message is broken: %x", m)
			return out
		}
		value := m[:n]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(m)
		}
		out[field], m = append(out[field], value), m[n:]
	}
	return out
}

func (f fields) data(field protowire.Number) []byte {
	if len(f[field]) == 0 {
		return nil
	}
	return f[field][0]
}

func (f fields) text(field protowire.Number) string { return string(f.data(field)) }

func (f fields) number(field protowire.Number) int64 {
	n, _ := protowire.ConsumeVarint(f.data(field))
	return int64(n)
}

func (f fields) dict(t *testing.T, field protowire.Number) map[string]string {
	out := map[string]string{}
	for _, data := range f[field] {
		entry := decode(t, data)
		out[entry.text(1)] = entry.text(2)
	}
	return out
}

// content is a stored blob.
type content struct {
	data   []byte
	labels map[string]string
}

// server is an in-memory containerd with the behavior of its content service
// (plugins/services/content/contentserver).
type server struct {
	t *testing.T

	mu      sync.Mutex
	blobs   map[string]content
	ingests map[string][]byte
	images  map[string]string // digests and media types by name
	leases  map[string]bool
	tasks   map[string]message // what is told of them
	// containers are what is told of them, snapshots their "snapshotter key",
	// and refusals the errors of calls by method.
	containers []message
	snapshots  map[string]bool
	refusals   map[string]error
	filters    []string // of the last list of containers
	calls      []string
	sent       int // bytes of content received
	cut        int // ends a stream after so many bytes, once
}

func serve(t *testing.T) (*server, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, blobs: map[string]content{}, ingests: map[string][]byte{}, images: map[string]string{}, leases: map[string]bool{}}
	g := grpc.NewServer(grpc.ForceServerCodec(codec{}), grpc.UnknownServiceHandler(s.handle))
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() {
		g.Stop()
		wg.Wait()
	})
	return s, "unix://" + path
}

func (s *server) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	method = strings.TrimPrefix(method, service)
	md, _ := metadata.FromIncomingContext(stream.Context())
	if ns := md.Get("containerd-namespace"); len(ns) != 1 || ns[0] != namespace {
		s.t.Errorf("%s has the namespace %q", method, ns)
	}
	s.mu.Lock()
	s.calls = append(s.calls, method)
	s.mu.Unlock()
	if method == "content.v1.Content/Write" {
		return s.write(stream)
	}
	var m message
	if err := stream.RecvMsg(&m); err != nil {
		return err
	}
	s.mu.Lock()
	refusal := s.refusals[method]
	s.mu.Unlock()
	if refusal != nil {
		return refusal
	}
	if method == "containers.v1.Containers/List" {
		return stream.SendMsg(s.list(decode(s.t, m)))
	}
	if method == "tasks.v1.Tasks/Get" {
		id := decode(s.t, m).text(1)
		s.mu.Lock()
		answer, known := s.tasks[id]
		s.mu.Unlock()
		if !known {
			return status.Errorf(codes.NotFound, "container %q: not found", id)
		}
		return stream.SendMsg(answer)
	}
	if err := s.one(stream.Context(), method, decode(s.t, m)); err != nil {
		return err
	}
	return stream.SendMsg(message{})
}

// list returns all containers and ignores the filters.
func (s *server) list(f fields) message {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filters = nil
	for _, filter := range f[1] {
		s.filters = append(s.filters, string(filter))
	}
	var answer message
	for _, c := range s.containers {
		answer.data(1, c)
	}
	return answer
}

func (s *server) one(_ context.Context, method string, f fields) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch method {
	case "leases.v1.Leases/Create":
		if s.leases[f.text(1)] {
			return status.Error(codes.AlreadyExists, "lease exists")
		}
		s.leases[f.text(1)] = true
	case "leases.v1.Leases/Delete":
		if !s.leases[f.text(1)] {
			return status.Error(codes.NotFound, "no lease")
		}
		delete(s.leases, f.text(1))
	case "images.v1.Images/Create", "images.v1.Images/Update":
		image := decode(s.t, f.data(1))
		target := decode(s.t, image.data(3))
		_, there := s.images[image.text(1)]
		if there == strings.HasSuffix(method, "Create") {
			return status.Error(map[bool]codes.Code{true: codes.AlreadyExists, false: codes.NotFound}[there], "image")
		}
		if _, ok := s.blobs[target.text(2)]; !ok || target.number(3) == 0 || target.text(1) == "" {
			s.t.Errorf("image %q has the target %v", image.text(1), target)
		}
		if there && (len(f[2]) != 1 || decode(s.t, f.data(2)).text(1) != "target") {
			s.t.Error("an update that would change labels")
		}
		s.images[image.text(1)] = target.text(1) + " " + target.text(2)
	case "content.v1.Content/Update":
		info := decode(s.t, f.data(1))
		c, ok := s.blobs[info.text(1)]
		if !ok {
			return status.Error(codes.NotFound, "no content")
		}
		labels := info.dict(s.t, 5)
		if len(decode(s.t, f.data(2))[1]) != len(labels) {
			s.t.Errorf("the mask %q is not of the labels %v", f.data(2), labels)
		}
		c.labels = maps.Clone(c.labels)
		if c.labels == nil {
			c.labels = map[string]string{}
		}
		maps.Copy(c.labels, labels)
		s.blobs[info.text(1)] = c
	case "tasks.v1.Tasks/Delete":
		if _, known := s.tasks[f.text(1)]; !known {
			return status.Error(codes.NotFound, "no task")
		}
		delete(s.tasks, f.text(1))
	case "containers.v1.Containers/Delete":
		n := len(s.containers)
		s.containers = slices.DeleteFunc(s.containers, func(c message) bool { return decode(s.t, c).text(1) == f.text(1) })
		if len(s.containers) == n {
			return status.Error(codes.NotFound, "no container")
		}
	case "snapshots.v1.Snapshots/Remove":
		key := f.text(1) + " " + f.text(2)
		if !s.snapshots[key] {
			return status.Error(codes.NotFound, "no snapshot")
		}
		delete(s.snapshots, key)
	case "content.v1.Content/Abort":
		delete(s.ingests, f.text(1))
	default:
		return status.Error(codes.Unimplemented, method)
	}
	return nil
}

func (s *server) write(stream grpc.ServerStream) error {
	ref, total, expected := "", int64(0), ""
	for first := true; ; first = false {
		var m message
		if err := stream.RecvMsg(&m); err != nil {
			return err // the client has gone
		}
		f := decode(s.t, m)
		if first {
			if ref = f.text(2); ref == "" {
				return status.Error(codes.InvalidArgument, "no ref")
			}
		}
		if f.text(4) != "" {
			expected = f.text(4)
		}
		if f.number(3) > 0 {
			total = f.number(3)
		}
		answer, end, err := s.step(ref, total, expected, f)
		if err != nil {
			return err
		}
		if err := stream.SendMsg(answer); err != nil || end {
			return err
		}
	}
}

func (s *server) step(ref string, total int64, expected string, f fields) (answer message, end bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.blobs[expected]; ok {
		delete(s.ingests, ref)
		return nil, true, status.Error(codes.AlreadyExists, "content exists")
	}
	data := s.ingests[ref]
	if action := f.number(1); action != actionStat {
		if offset := f.number(5); offset > 0 && offset != int64(len(data)) {
			return nil, true, status.Error(codes.OutOfRange, "offset")
		} else if offset == 0 {
			data = nil
		}
		data = append(data, f.data(6)...)
		s.sent += len(f.data(6))
		s.ingests[ref] = data
		if s.cut > 0 && s.sent >= s.cut {
			s.cut = 0
			return nil, true, status.Error(codes.Unavailable, "power cut")
		}
		if action == actionCommit {
			if got := fmt.Sprintf("sha256:%x", sha256.Sum256(data)); got != expected || total != int64(len(data)) {
				return nil, true, status.Errorf(codes.FailedPrecondition, "unexpected commit digest %s", got)
			}
			s.blobs[expected] = content{data: bytes.Clone(data), labels: f.dict(s.t, 7)}
			delete(s.ingests, ref)
			end = true
		}
	}
	answer.number(1, f.number(1))
	answer.data(2, []byte{8, 1}) // a time
	answer.number(4, int64(len(data)))
	answer.number(5, total)
	answer.text(6, "sha256:")
	return answer, end, nil
}
