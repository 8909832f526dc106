// Grafana's libraries expect a few globals of Node; the dashboards are served from the repository.
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

export default defineConfig({
  base: './',
  plugins: [react()],
  publicDir: '../../dashboards',
  define: { 'process.env.NODE_ENV': '"production"', 'process.env': '{}', global: 'globalThis' },
  build: { target: 'esnext', chunkSizeWarningLimit: 30000, minify: false },
});
