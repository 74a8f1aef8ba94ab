package apiobjects

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/tinylet/tinylet/agent/source/objects"
)

var _ objects.Reader = (*objects.Folder)(nil)

// source returns an object named after it for every read, or its error.
type source struct {
	name string
	err  error
}

func (s source) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	m := &v1.ConfigMap{}
	m.Name = s.name
	return m, s.err
}

func (s source) Secret(context.Context, string, string) (*v1.Secret, error) {
	o := &v1.Secret{}
	o.Name = s.name
	return o, s.err
}

func (s source) PersistentVolumeClaim(context.Context, string, string) (*v1.PersistentVolumeClaim, error) {
	o := &v1.PersistentVolumeClaim{}
	o.Name = s.name
	return o, s.err
}

func (s source) PersistentVolume(context.Context, string) (*v1.PersistentVolume, error) {
	o := &v1.PersistentVolume{}
	o.Name = s.name
	return o, s.err
}

func (s source) RuntimeClass(context.Context, string) (*nodev1.RuntimeClass, error) {
	o := &nodev1.RuntimeClass{}
	o.Name = s.name
	return o, s.err
}

func (s source) Token(context.Context, *v1.Pod, string, time.Duration) (string, time.Time, error) {
	return s.name, time.Time{}, s.err
}

func (s source) TrustBundle(context.Context, *v1.ClusterTrustBundleProjection) (string, error) {
	return s.name, s.err
}

func TestPrefer(t *testing.T) {
	broken := errors.New("the folder cannot be read")
	for _, row := range []struct {
		name   string
		err    error // of the first
		second error
		want   string
		fails  error
	}{
		{"the first has it", nil, nil, "first", nil},
		{"the first does not have it", fmt.Errorf("x: %w", objects.NotFound(key{})), nil, "second", nil},
		{"the first cannot have it", fmt.Errorf("x %w", objects.ErrNoServer), nil, "second", nil},
		{"the first does not know", broken, nil, "", broken},
		{"the second does not know", objects.NotFound(key{}), errLink, "", errLink},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := Chain(source{"first", row.err}, source{"second", row.second})
			check := func(what, got string, err error) {
				t.Helper()
				if !errors.Is(err, row.fails) || row.fails == nil && (got != row.want || err != nil) {
					t.Errorf("%s: %q, %v", what, got, err)
				}
			}
			ctx := t.Context()
			m, err := p.ConfigMap(ctx, "ns", "x")
			check("ConfigMap", m.Name, err)
			s, err := p.Secret(ctx, "ns", "x")
			check("Secret", s.Name, err)
			c, err := p.PersistentVolumeClaim(ctx, "ns", "x")
			check("claim", c.Name, err)
			v, err := p.PersistentVolume(ctx, "x")
			check("volume", v.Name, err)
			r, err := p.RuntimeClass(ctx, "x")
			check("class", r.Name, err)
			token, _, err := p.Token(ctx, nil, "", 0)
			check("token", token, err)
			pem, err := p.TrustBundle(ctx, nil)
			check("bundle", pem, err)
		})
	}
}
