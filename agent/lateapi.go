package agent

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// lateAPI is the API server for those who may ask before the node has its
// credentials: their requests wait for them, as for a server that does not
// answer.
type lateAPI struct {
	client func(ctx context.Context) (*apiclient.Client, error)
}

func (l lateAPI) Get(ctx context.Context, r apiclient.Resource, namespace, name string, into runtime.Object) error {
	c, err := l.client(ctx)
	if err != nil {
		return err
	}
	return c.Get(ctx, r, namespace, name, into)
}

func (l lateAPI) List(ctx context.Context, r apiclient.Resource, namespace string, options metav1.ListOptions, into runtime.Object) error {
	c, err := l.client(ctx)
	if err != nil {
		return err
	}
	return c.List(ctx, r, namespace, options, into)
}

func (l lateAPI) Watch(ctx context.Context, r apiclient.Resource, namespace string, options metav1.ListOptions) (watch.Interface, error) {
	c, err := l.client(ctx)
	if err != nil {
		return nil, err
	}
	return c.Watch(ctx, r, namespace, options)
}

func (l lateAPI) Create(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, object, into runtime.Object) error {
	c, err := l.client(ctx)
	if err != nil {
		return err
	}
	return c.Create(ctx, r, namespace, name, subresource, object, into)
}

func (l lateAPI) Patch(ctx context.Context, r apiclient.Resource, namespace, name, subresource string, kind types.PatchType, patch []byte, into runtime.Object) error {
	c, err := l.client(ctx)
	if err != nil {
		return err
	}
	return c.Patch(ctx, r, namespace, name, subresource, kind, patch, into)
}

func (l lateAPI) Delete(ctx context.Context, r apiclient.Resource, namespace, name string, options metav1.DeleteOptions) error {
	c, err := l.client(ctx)
	if err != nil {
		return err
	}
	return c.Delete(ctx, r, namespace, name, options)
}
