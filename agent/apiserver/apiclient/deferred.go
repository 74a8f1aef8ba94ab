package apiclient

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Deferred sends requests with a client that may not exist yet. Until the node has
// credentials, a request waits for them until its context ends. Errors are those of
// Client or of the client's method.
type Deferred struct {
	// Client returns the client, and blocks until there is one or ctx ends.
	Client func(ctx context.Context) (*Client, error)
}

// Get is Client.Get.
func (d Deferred) Get(ctx context.Context, r Resource, namespace, name string, into runtime.Object) error {
	c, err := d.Client(ctx)
	if err != nil {
		return err
	}
	return c.Get(ctx, r, namespace, name, into)
}

// List is Client.List.
func (d Deferred) List(ctx context.Context, r Resource, namespace string, options metav1.ListOptions, into runtime.Object) error {
	c, err := d.Client(ctx)
	if err != nil {
		return err
	}
	return c.List(ctx, r, namespace, options, into)
}

// Watch is Client.Watch.
func (d Deferred) Watch(ctx context.Context, r Resource, namespace string, options metav1.ListOptions) (watch.Interface, error) {
	c, err := d.Client(ctx)
	if err != nil {
		return nil, err
	}
	return c.Watch(ctx, r, namespace, options)
}

// Create is Client.Create.
func (d Deferred) Create(ctx context.Context, r Resource, namespace, name, subresource string, object, into runtime.Object) error {
	c, err := d.Client(ctx)
	if err != nil {
		return err
	}
	return c.Create(ctx, r, namespace, name, subresource, object, into)
}

// Patch is Client.Patch.
func (d Deferred) Patch(ctx context.Context, r Resource, namespace, name, subresource string, kind types.PatchType, patch []byte, into runtime.Object) error {
	c, err := d.Client(ctx)
	if err != nil {
		return err
	}
	return c.Patch(ctx, r, namespace, name, subresource, kind, patch, into)
}

// Delete is Client.Delete.
func (d Deferred) Delete(ctx context.Context, r Resource, namespace, name string, options metav1.DeleteOptions) error {
	c, err := d.Client(ctx)
	if err != nil {
		return err
	}
	return c.Delete(ctx, r, namespace, name, options)
}
