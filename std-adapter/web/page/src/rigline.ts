// The package rigline-web: what reads and writes the protocols. Built into ../../dist before this page is.
export * from 'rigline-web';
